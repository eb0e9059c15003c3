"""`make bench`: this project beside kube-controller-manager's TTL controller and the raw limit, all in one run."""
