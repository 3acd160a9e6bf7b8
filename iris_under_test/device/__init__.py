"""Code that runs on the device. Never imports the host side."""
