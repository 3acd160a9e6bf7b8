ONE_PROCESS = "it calls the device driver of its own process"
