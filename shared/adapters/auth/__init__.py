"""Authentication: tokens that this process sends to servers, and checks of the tokens that callers send."""
