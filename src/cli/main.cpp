#include <cstdlib>

#include "cli/app.h"
#include "core/engine.h"
#include "dist/group.h"

int main(int argc, char** argv) {
  melete::prepare_process(argc, argv);
  const int code = melete::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  // Threads of a broken group may wait for others that are gone; nothing of ours is left to do.
  if (melete::Group::some_group_failed()) std::_Exit(code);
  return code;
}
