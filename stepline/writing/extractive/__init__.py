"""Steps by grammar: the clauses in which a speaker does something or instructs the viewer to."""
