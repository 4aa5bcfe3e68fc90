"""What a run leaves for people: metrics, readable rollouts, a live screen, one page. Nothing here needs torch."""
