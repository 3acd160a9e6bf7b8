ONE_PROCESS = "it compares addresses and files within the process of the library"
