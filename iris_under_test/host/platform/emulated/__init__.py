"""The emulated AMD device."""
