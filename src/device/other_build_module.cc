// A module as another build would have made it, for module_test.cc.
extern "C" {
const char* levada_module_interface_id() { return "another build's"; }
void levada_do_something() {}
}
