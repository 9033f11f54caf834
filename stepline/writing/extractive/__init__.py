"""Steps by grammar: the clauses in which a speaker does something or tells the viewer to."""
