// What all frozen models have in common: each computes where it was put and answers on the device that the
// question came from, so that whoever asks need not know where it is. Words come from the host.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace melete {

class Placed {
 public:
  virtual ~Placed() = default;
  // Nobody may be asking meanwhile. A model without weights has nothing to move.
  virtual void move_to(c10::Device /*device*/) {}
};

template <class Role>
std::unique_ptr<Role> put_on(c10::Device device, std::unique_ptr<Role> role) {
  role->move_to(device);
  return role;
}

}  // namespace melete
