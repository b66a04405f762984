"""The law of gradients, held against random networks: what they are, what is right, what is asked."""
