"""Parts of networks that several systems use, as fast as a CPU allows."""
