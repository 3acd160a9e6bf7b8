"""Generated changes of Python source: ``operators`` for the library under test, ``harness`` for the harness itself.

``places`` finds nodes of the syntax tree with their position in the text.
"""
