"""What all HTML pages share: one design, and a guarded server on this machine."""
