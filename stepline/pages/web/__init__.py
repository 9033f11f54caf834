"""Pages on this machine: a server with guards that the annotation, audit and studio pages share."""
