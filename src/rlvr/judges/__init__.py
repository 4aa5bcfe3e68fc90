"""Judges: who is asked about what the policy wrote, where no verifier computes the answer."""
