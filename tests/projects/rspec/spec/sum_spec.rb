RSpec.describe 'sum' do
  it 'passes' do
    expect(1 + 2).to eq(3)
  end

  it 'fails' do
    expect(1 + 2).to eq(4)
  end

  it 'errors' do
    nil.boom
  end

  it 'is skipped', skip: 'not today' do
  end

  it 'is pending' do
    pending 'known'
    raise 'still'
  end

  context 'when set-up fails' do
    before { raise 'no set-up' }

    it('is not reached') {}
  end
end
