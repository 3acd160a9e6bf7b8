ONE_PROCESS = "it calls functions of the library with objects of its own process"
ONE_PROCESS_ON_GPUS = "no judge apart has run it on a GPU yet"
