"""Steps by a language model: a server or a GGUF on this machine."""
