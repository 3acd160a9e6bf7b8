ONE_PROCESS = "it runs on several nodes, where the judge is in the process of the library"
NODES = "several"
