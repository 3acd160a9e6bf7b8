"""Code that several folders of the suite use: case types, forms, masks, and access to a peer's memory."""
