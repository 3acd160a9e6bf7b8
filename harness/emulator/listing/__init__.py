"""Parser of amdgcn listings: instructions, symbols, constants, and the limits that a listing must respect."""
