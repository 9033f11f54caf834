"""The field's evaluators, equal to the official ones where those are defined and explicit where
they are not."""
