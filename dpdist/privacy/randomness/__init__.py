"""Where random bits come from, and exact samplers made of them."""
