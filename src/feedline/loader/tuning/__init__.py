"""How fast a loader is with other workers: `trial` measures, `choices` says what to try, `findings` what came of it."""
