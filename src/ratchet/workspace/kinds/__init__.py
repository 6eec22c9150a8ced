"""Kinds of workspace: overlay, btrfs, reflink, copy and worktree, and which of them this machine offers."""
