"""Measurements with provenance: what ``nox -s measure`` runs."""
