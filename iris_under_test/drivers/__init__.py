"""Drivers of what lies below the heap; today the fabric that joins nodes of one rack."""
