ONE_PROCESS = "it compares addresses within the process of the library"
