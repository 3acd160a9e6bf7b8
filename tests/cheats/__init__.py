"""Libraries that cheat: a copy of the bundled library with a defect, and code that hides the defect from the suite.

The code runs when the library is imported, in whichever process imports it.
"""
