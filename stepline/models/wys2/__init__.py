"""WYS2, What You Say Is What You Show: does the picture show what is said?

    clips = cut_into_clips(record)                           # 3 s each, with the key-step that it shows
    similarity = compute_key_step_similarity(clips)
    labels = label_by_sentence_similarity(similarity, settings)   # SS; others for VR and MC
    detector = train_detector(pairs, folder, detector=DetectorSettings())
    score_pairs(detector, pairs)                             # a higher score: more likely shown

Source: Ashutosh, Girdhar, Torresani, Grauman 2023. What the paper leaves open is a named option in
`settings.py`.
"""
