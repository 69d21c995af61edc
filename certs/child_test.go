package certs

// child runs the part of a test that needs a process of its own. It reports
// whether this process is such a child.
func child() bool { return false }
