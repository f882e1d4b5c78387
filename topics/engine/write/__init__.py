"""Operations that change a topic: appends, deletes, expiry, evictions, creation and deletion."""
