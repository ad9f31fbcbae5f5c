// Layers that keep statistics of the data (codebooks) follow the data of all ranks. The trainer shows them
// the group; alone there is none to see.
#pragma once

namespace melete {

class Group;

class GroupMember {
 public:
  virtual ~GroupMember() = default;
  void join(Group* group) {
    group_ = group;
  }  // which must outlive the layer's next forward pass; null: alone

 protected:
  Group* group_ = nullptr;
};

// A model whose task wants to know the group: that of the training, which the trainer shows it.
template <class Module>
struct InGroup : Module, GroupMember {
  using Module::Module;
  Group* group() const { return group_; }  // null: alone
};

}  // namespace melete
