"""Tests of shards, their merge, and fleets."""
