"""What the commands of ``iris-harness`` do, without their option parsing (harness/cli.py) and without the reports."""
