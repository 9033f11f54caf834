"""How the narration tagger is trained: narrations marked by people, labels, the loop."""
