"""Who has a video's stages done: worker processes of this machine, or actors of a Ray cluster that own such workers."""
