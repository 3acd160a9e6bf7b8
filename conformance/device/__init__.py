TOGETHER = "it asks the device driver of its own process"
