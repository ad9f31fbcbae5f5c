#include "cli/app.h"
#include "core/engine.h"

int main(int argc, char** argv) {
  melete::prepare_process(argc, argv);
  return melete::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
