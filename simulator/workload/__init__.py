"""Generated traffic: arrivals, request lengths, and scenarios made of them."""
