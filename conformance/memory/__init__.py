ONE_PROCESS_ON_GPUS = "no judge apart has run it on a GPU yet"
