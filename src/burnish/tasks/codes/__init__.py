"""Tasks whose replies are codes: pixels, cells of frames, notes, sounds of speech; `tiny-omni` has a token for each."""
