"""WYS2, What You Say Is What You Show: does the picture show what is said?

    clips = narrated_clips(record)                              # 3 s each, with the key-step that it shows
    labels = by_similarity(similarities(clips, settings), settings)      # SS; by_relevance VR, by_consensus MC
    detector = train_detector(pairs, folder, detector=DetectorSettings())
    score_pairs(detector, pairs)                                # higher: likelier shown

Source: Ashutosh, Girdhar, Torresani, Grauman 2023. What the paper leaves open is a named option in `settings.py`.
"""
