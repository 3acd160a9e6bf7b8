ONE_PROCESS = "it compares objects and addresses within the process of the library"
