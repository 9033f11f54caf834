"""How tasks are done: scheduler > pool of worker processes > worker > stage, on this machine or by
Ray's actors."""
