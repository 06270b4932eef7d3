"""For users' tests: contract classes, fakes, a resume checker. Nothing in feedline imports it."""
