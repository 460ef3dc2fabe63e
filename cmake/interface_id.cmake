# cmake -DSOURCES=src -DFLAGS=… -DOUT=interface_id.cc -P: writes base's interface_id(), a hash over every header that a module may
# share with the binary, and over what else decides how objects are laid out. Run again when a header changes.
file(GLOB_RECURSE headers RELATIVE "${SOURCES}" "${SOURCES}/*.h")
list(SORT headers)
set(all "${FLAGS}")
foreach(header ${headers})
  if(NOT header MATCHES "(_test|/test_[a-z_]+)\\.h$")
    file(SHA256 "${SOURCES}/${header}" hash)
    string(APPEND all "${header} ${hash}\n")
  endif()
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING "${id}" 0 16 id)
file(WRITE "${OUT}" "#include \"base/interface_id.h\"\n\nnamespace levada {\n\nconst char* interface_id() { return \"${id}\"; }\n\n}  // namespace levada\n")
