// The engine is set up as in the program, so that tests run at the program's speed.
#include <gtest/gtest.h>

#include "core/engine.h"

int main(int argc, char** argv) {
  melete::prepare_process(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
