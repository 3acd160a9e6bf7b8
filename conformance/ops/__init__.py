"""Matrix products fused with collectives."""
