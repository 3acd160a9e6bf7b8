"""Tests of the Iris under test itself: what it compiles to, its host side, and a first run on emulated ranks."""
