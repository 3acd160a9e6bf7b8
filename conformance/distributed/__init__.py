ONE_PROCESS = "it calls functions of the library with objects of its own process"
